//! The driver of the Rust library, in this process, on its public API: see the README beside this folder.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::time::Duration;

use pipeline_state::{
    Backend, Entry, Error, Expectation, Holder, Lease, Outcome, Plugins, Role, Settings, State,
    StateId, Version,
};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

/// Those that were acquired here: each is renewed in the background until it is released.
type Leases = HashMap<(String, String), Lease>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let plugins = Plugins::builder().build().await?;
    let mut leases = Leases::new();
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let answer = match asked(&plugins, &mut leases, &request).await {
            Ok(value) => json!({ "ok": value }),
            Err(failure) => json!({ "error": shown_error(*failure.downcast::<Error>()?) }),
        };
        writeln!(std::io::stdout(), "{answer}")?;
    }
    Ok(())
}

async fn asked(plugins: &Plugins, leases: &mut Leases, request: &Value) -> Result<Value, Failure> {
    let store = opened(plugins, request)?;
    let text = |name: &str| {
        request
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let number = |name: &str| {
        request
            .get(name)
            .and_then(Value::as_u64)
            .unwrap_or_default()
    };
    let limit = u32::try_from(number("limit"))?;
    let (id, pattern) = (StateId::from(text("id")), text("pattern"));
    let after = request
        .get("after")
        .and_then(Value::as_str)
        .map(StateId::from);
    Ok(match text("op") {
        "get" => store.get(&id).await?.map(shown_entry).into(),
        "get_page" => {
            let page = store.get_page(pattern, after.as_ref(), limit).await?;
            let entries: Vec<_> = page.entries.into_iter().map(shown_entry).collect();
            json!({"entries": entries, "next": page.next.map(|id| id.to_string())})
        }
        "get_ids" => {
            let page = store.get_ids(pattern, after.as_ref(), limit).await?;
            let ids: Vec<_> = page.ids.iter().map(StateId::as_str).collect();
            json!({"ids": ids, "next": page.next.map(|id| id.to_string())})
        }
        "set" => store
            .set_if(&id, state(request)?, expected(request)?)
            .await?
            .to_string()
            .into(),
        "set_many" => {
            let states = request
                .get("states")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            let states = states.map(|each| {
                let id = each.get("id").and_then(Value::as_str).unwrap_or_default();
                Ok((StateId::from(id), state(each)?))
            });
            store
                .set_many(states.collect::<Result<_, Failure>>()?)
                .await?
                .into()
        }
        "update" => store.update(&id, state(request)?).await?.to_string().into(),
        "delete" => store.delete_if(&id, expected(request)?).await?.into(),
        "clear" => store.clear().await?.into(),
        "acquire" => {
            let lock = store.lock(&id).owner(text("owner"));
            let lease = lock.ttl(Duration::from_millis(number("ttl_ms"))).await?;
            let shown = held(&store, &id, lease.token()).await?;
            leases.insert((id.to_string(), lease.token().to_owned()), lease);
            shown
        }
        // The host does that by itself, so that what is left is to see whether it could.
        "renew" => held(&store, &id, text("token")).await?,
        "release" => {
            if let Some(lease) = leases.remove(&(id.to_string(), text("token").to_owned())) {
                lease.release().await?;
            }
            Value::Null
        }
        "inspect" => {
            let holders: Vec<_> = store
                .holders(pattern)
                .await?
                .into_iter()
                .map(shown_holder)
                .collect();
            json!({"leases": holders, "next": null})
        }
        "break_lease" => store.break_lease(&id, text("token")).await?.into(),
        "versions" => {
            let before = request
                .get("before")
                .and_then(Value::as_str)
                .map(str::parse)
                .transpose()?;
            let changes = store.versions(&id, before, limit).await?.into_iter();
            let shown = changes.map(|change| {
                json!({"version": change.version.to_string(), "written_at_ms": change.written_at_ms, "state": change.state.map(shown_state)})
            });
            shown.collect()
        }
        "check" => {
            let findings = store.check().await?.into_iter();
            let shown = findings.map(|finding| {
                json!({"severity": finding.severity.to_string(), "subject": finding.subject, "text": finding.text, "mend": finding.mend})
            });
            shown.collect()
        }
        "migrate" => store.migrate().await?.into(),
        "describe" => described(plugins),
        other => return Err(format!("there is no operation {other}").into()),
    })
}

fn opened(plugins: &Plugins, request: &Value) -> Result<Backend, Failure> {
    let target = request.get("target").ok_or("there is no target")?;
    let uri = target
        .get("uri")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let given = target
        .get("settings")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let settings = given.fold(Settings::new(), |all, (name, value)| {
        all.set(name, value.as_str().unwrap_or_default())
    });
    let store = plugins.open(uri, &settings)?;
    Ok(match request.get("lease").and_then(Value::as_str) {
        Some(token) => store.under_lease(token),
        None => store,
    })
}

fn state(request: &Value) -> Result<State, Failure> {
    let state = request.get("state").ok_or("there is no state")?;
    let document = |name: &str| state.get(name).and_then(Value::as_str).map(str::to_owned);
    Ok(State {
        completed: document("completed"),
        partial: document("partial"),
    })
}

fn expected(request: &Value) -> Result<Expectation, Failure> {
    let expect = request.get("expect").unwrap_or(&Value::Null);
    Ok(
        match (
            expect.as_str(),
            expect.get("version").and_then(Value::as_str),
        ) {
            (Some("absent"), _) => Expectation::Absent,
            (_, Some(version)) => Expectation::Version(version.parse()?),
            _ => Expectation::Any,
        },
    )
}

/// The lease as everybody sees it; it is lost where nobody does.
async fn held(store: &Backend, id: &StateId, token: &str) -> Result<Value, Error> {
    let holder = store
        .holders("*")
        .await?
        .into_iter()
        .find(|holder| holder.id == *id);
    match holder {
        Some(holder) if holder.token == token => Ok(shown_holder(holder)),
        holder => Err(Error::Locked { holder }),
    }
}

fn shown_state(state: State) -> Value {
    json!({"completed": state.completed, "partial": state.partial})
}

fn shown_entry(entry: Entry) -> Value {
    json!({
        "id": entry.id.as_str(),
        "state": shown_state(entry.state),
        "version": entry.version.to_string(),
        "updated_at_ms": entry.updated_at_ms,
    })
}

fn shown_holder(holder: Holder) -> Value {
    json!({
        "id": holder.id.as_str(),
        "token": holder.token,
        "owner": holder.owner,
        "acquired_at_ms": holder.acquired_at_ms,
        "renewed_at_ms": holder.renewed_at_ms,
        "expires_at_ms": holder.expires_at_ms,
    })
}

fn described(plugins: &Plugins) -> Value {
    let described = plugins.iter().map(|served| {
        let plugin = served.description;
        let settings = plugin.settings.iter().map(|setting| {
            let role = setting.role.map(|role| match role {
                Role::Host => "host",
                Role::Port => "port",
                Role::Tls => "tls",
                Role::User => "user",
                Role::Password => "password",
                _ => "another",
            });
            json!({"name": setting.name, "kind": setting.kind, "role": role, "label": setting.label, "default": setting.default, "sensitive": setting.sensitive, "env": setting.env})
        });
        json!({
            "name": plugin.name,
            "version": plugin.version,
            "schemes": plugin.schemes,
            "settings": settings.collect::<Value>(),
            "default_ports": {"plain": plugin.plain_port, "tls": plugin.tls_port},
            "needs_credentials": plugin.needs_credentials,
        })
    });
    described.into_iter().next().unwrap_or_default()
}

fn shown_error(error: Error) -> Value {
    let message = error.to_string();
    let outcome = match error.outcome() {
        Outcome::NotApplied => "not-applied",
        Outcome::Unknown => "unknown",
    };
    let mut shown = json!({"message": message, "outcome": outcome});
    let kind = match error {
        Error::InvalidInput(_) => "invalid-input",
        Error::MissingSetting(_) => "missing-setting",
        Error::Unauthenticated(_) => "unauthenticated",
        Error::AccessDenied(_) => "access-denied",
        Error::Conflict { stored } => {
            add(
                &mut shown,
                "found",
                stored.map(|version: Version| version.to_string()).into(),
            );
            "conflict"
        }
        Error::Locked { holder } => {
            add(&mut shown, "holder", holder.map(shown_holder).into());
            "locked"
        }
        Error::Unavailable { .. } => "unavailable",
        Error::TimedOut { .. } => "timed-out",
        Error::Server { code, name, .. } => {
            add(&mut shown, "code", code.into());
            add(&mut shown, "name", name.into());
            "server"
        }
        Error::Corrupt(_) => "corrupt",
        Error::UnknownScheme { .. } => "no-plugin",
        Error::OriginDenied { .. } | Error::NotAllowed { .. } => "not-allowed",
        _ => "plugin-failed",
    };
    add(&mut shown, "kind", kind.into());
    shown
}

fn add(object: &mut Value, name: &str, value: Value) {
    if let Some(members) = object.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}
