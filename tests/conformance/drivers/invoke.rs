//! The driver of `wasmtime run --invoke`: a call is a process, and knows nothing of us but the component. See the README beside
//! this folder.
//!
//! Arguments and results are text there (WAVE). Their types are read from the component, so that nothing here knows what a
//! state or a lease looks like.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::Command;

use harness::workspace;
use serde_json::{Map, Value, json};
use wasm_wave::value::{FuncType, Type, Value as Wave, resolve_wit_func_type};
use wasm_wave::wasm::{WasmFunc, WasmType, WasmTypeKind, WasmValue};
use wit_parser::WorldItem;
use wit_parser::decoding::{DecodedWasm, decode};

type Failure = Box<dyn std::error::Error>;

/// The component, and the types of its functions by their names.
struct Plugin {
    file: PathBuf,
    functions: HashMap<String, FuncType>,
}

fn main() -> Result<(), Failure> {
    let plugin = Plugin::read(workspace().join("target/components/clickhouse.wasm"))?;
    // As they were acquired or renewed last: the contract wants them whole.
    let mut leases = HashMap::new();
    for line in std::io::stdin().lock().lines() {
        let request = with_whole_lease(serde_json::from_str(&line?)?, &leases);
        let answer = plugin.call(&request)?;
        if let Some(token) = answer.pointer("/ok/token").and_then(Value::as_str) {
            leases.insert(
                token.to_owned(),
                answer.get("ok").cloned().unwrap_or_default(),
            );
        }
        writeln!(std::io::stdout(), "{answer}")?;
    }
    Ok(())
}

impl Plugin {
    fn read(file: PathBuf) -> Result<Plugin, Failure> {
        let DecodedWasm::Component(resolve, world) = decode(&std::fs::read(&file)?)? else {
            return Err("it is no component".into());
        };
        let world = resolve.worlds.get(world).ok_or("it has no world")?;
        let mut functions = HashMap::new();
        for export in world.exports.values() {
            let WorldItem::Interface { id, .. } = export else {
                continue;
            };
            let interface = resolve.interfaces.get(*id).ok_or("it lacks an interface")?;
            for (name, function) in &interface.functions {
                functions.insert(name.clone(), resolve_wit_func_type(&resolve, function)?);
            }
        }
        Ok(Plugin { file, functions })
    }

    /// The protocol's answer to a request.
    fn call(&self, request: &Value) -> Result<Value, Failure> {
        let name = request
            .get("op")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .replace('_', "-");
        let function = self
            .functions
            .get(&name)
            .ok_or_else(|| format!("there is no function {name}"))?;
        let mut arguments = Vec::new();
        for (parameter, ty) in function.param_names().zip(function.params()) {
            let value = wave_of(&ty, &argument(request, &parameter)?);
            let value = value.map_err(|why| format!("{name}: {parameter}: {why}"))?;
            arguments.push(wasm_wave::to_string(&value)?);
        }
        let call = format!("{name}({})", arguments.join(", "));
        let mut run = Command::new(harness::wasmtime()?);
        run.args(["run", "-S", "http", "--invoke", &call])
            .arg(&self.file);
        let output = run.output()?;
        let (told, went_wrong) = (
            String::from_utf8(output.stdout)?,
            String::from_utf8_lossy(&output.stderr),
        );
        if !output.status.success() {
            return Ok(json!({"error": {"kind": "plugin-failed", "message": went_wrong}}));
        }
        let ty = function
            .results()
            .next()
            .ok_or_else(|| format!("{name} has no result"))?;
        let result: Wave = wasm_wave::from_str(&ty, told.trim_end())?;
        Ok(answer(&name, &result))
    }
}

/// What a parameter is in the protocol's request.
fn argument(request: &Value, parameter: &str) -> Result<Value, Failure> {
    let given = request
        .get(parameter.replace('-', "_"))
        .cloned()
        .unwrap_or_default();
    let pairs = |values: &mut dyn Iterator<Item = (Value, Value)>| {
        values.map(|(one, other)| json!([one, other])).collect()
    };
    Ok(match (parameter, &given) {
        ("target", _) => {
            let settings = given
                .get("settings")
                .and_then(Value::as_object)
                .into_iter()
                .flatten();
            let settings: Value =
                pairs(&mut settings.map(|(name, value)| (name.as_str().into(), value.clone())));
            json!({"uri": given.get("uri"), "settings": settings})
        }
        ("states", Value::Array(states)) => {
            let member = |each: &Value, name: &str| each.get(name).cloned().unwrap_or_default();
            pairs(
                &mut states
                    .iter()
                    .map(|each| (member(each, "id"), member(each, "state"))),
            )
        }
        ("expect", Value::Null) => "any".into(),
        ("request", _) => {
            // Chosen by whoever asks: this is as good as at random, for a test.
            let mut given = request.clone();
            if let (None, Some(members)) = (request.get("token"), given.as_object_mut()) {
                members.insert("token".to_owned(), harness::fresh_name("lease").into());
            }
            given
        }
        _ => given,
    })
}

/// The request, with the lease that it names by its token where the contract wants it whole.
fn with_whole_lease(mut request: Value, leases: &HashMap<String, Value>) -> Value {
    let Some(members) = request.as_object_mut() else {
        return request;
    };
    if let Some("renew" | "release") = members.get("op").and_then(Value::as_str) {
        let token = members
            .get("token")
            .and_then(Value::as_str)
            .unwrap_or_default();
        // Nobody's lease is asked for too.
        let lease = leases.get(token).cloned().unwrap_or_else(|| {
            json!({"id": members.get("id"), "token": token, "epoch": 0, "owner": "", "acquired_at_ms": 0, "renewed_at_ms": 0, "expires_at_ms": 0})
        });
        members.insert("lease".to_owned(), lease);
    }
    request
}

/// A value of the protocol as one of this type.
fn wave_of(ty: &Type, value: &Value) -> Result<Wave, Failure> {
    let wrong = || Failure::from(format!("{value} is no {ty}"));
    // Beyond 2^53 they are text.
    let number = || match value {
        Value::String(text) => text.parse().map_err(|_| wrong()),
        other => other.as_u64().ok_or_else(wrong),
    };
    Ok(match ty.kind() {
        WasmTypeKind::Bool => Wave::make_bool(value.as_bool().ok_or_else(wrong)?),
        WasmTypeKind::U32 => Wave::make_u32(u32::try_from(number()?)?),
        WasmTypeKind::U64 => Wave::make_u64(number()?),
        WasmTypeKind::String => Wave::make_string(value.as_str().ok_or_else(wrong)?.into()),
        WasmTypeKind::Option => {
            let some = ty.option_some_type().ok_or_else(wrong)?;
            let value = (!value.is_null())
                .then(|| wave_of(&some, value))
                .transpose()?;
            Wave::make_option(ty, value)?
        }
        WasmTypeKind::List => {
            let element = ty.list_element_type().ok_or_else(wrong)?;
            let elements = value.as_array().ok_or_else(wrong)?.iter();
            let elements = elements.map(|value| wave_of(&element, value));
            Wave::make_list(ty, elements.collect::<Result<Vec<_>, _>>()?)?
        }
        WasmTypeKind::Tuple => {
            let elements = ty
                .tuple_element_types()
                .zip(value.as_array().ok_or_else(wrong)?);
            let elements = elements.map(|(ty, value)| wave_of(&ty, value));
            Wave::make_tuple(ty, elements.collect::<Result<Vec<_>, _>>()?)?
        }
        WasmTypeKind::Record => {
            let mut fields = Vec::new();
            for (name, ty) in ty.record_fields() {
                let value = value.get(name.replace('-', "_")).unwrap_or(&Value::Null);
                fields.push((name, wave_of(&ty, value)?));
            }
            Wave::make_record(
                ty,
                fields
                    .iter()
                    .map(|(name, value)| (name.as_ref(), value.clone())),
            )?
        }
        WasmTypeKind::Variant => {
            let payload = value.as_object().and_then(|members| members.iter().next());
            let (name, payload) = match (value.as_str(), payload) {
                (Some(name), _) => (name, None),
                (None, Some((name, payload))) => (name.as_str(), Some(payload)),
                _ => return Err(wrong()),
            };
            let case = ty.variant_cases().find(|(case, _)| case == name);
            let payload = case.and_then(|(_, ty)| ty).zip(payload);
            let payload = payload
                .map(|(ty, payload)| wave_of(&ty, payload))
                .transpose()?;
            Wave::make_variant(ty, name, payload)?
        }
        _ => return Err(wrong()),
    })
}

fn answer(function: &str, result: &Wave) -> Value {
    if result.kind() != WasmTypeKind::Result {
        return json!({"ok": json_of("", result)});
    }
    match result.unwrap_result() {
        Ok(value) => {
            let name = if matches!(function, "set" | "update") {
                "version"
            } else {
                ""
            };
            json!({"ok": value.map(|value| json_of(name, &value))})
        }
        Err(error) => json!({"error": error.map(|error| shown_error(&error))}),
    }
}

/// A value in the protocol's form. `name` is that of the record's field, if it is one.
fn json_of(name: &str, value: &Wave) -> Value {
    match value.kind() {
        WasmTypeKind::Bool => value.unwrap_bool().into(),
        WasmTypeKind::U16 => value.unwrap_u16().into(),
        WasmTypeKind::U32 => value.unwrap_u32().into(),
        WasmTypeKind::S32 => value.unwrap_s32().into(),
        WasmTypeKind::U64 if matches!(name, "version" | "epoch") => {
            value.unwrap_u64().to_string().into()
        }
        WasmTypeKind::U64 => value.unwrap_u64().into(),
        WasmTypeKind::String => value.unwrap_string().into(),
        WasmTypeKind::Enum => value.unwrap_enum().into(),
        WasmTypeKind::Option => value
            .unwrap_option()
            .map(|value| json_of(name, &value))
            .into(),
        WasmTypeKind::List => value
            .unwrap_list()
            .map(|value| json_of("", &value))
            .collect(),
        WasmTypeKind::Record => {
            let fields = value.unwrap_record();
            let members =
                fields.map(|(name, value)| (name.replace('-', "_"), json_of(&name, &value)));
            Value::Object(members.collect())
        }
        kind => format!("a {kind:?}, of which the contract has none").into(),
    }
}

/// The contract's `error` in the protocol's form.
fn shown_error(error: &Wave) -> Value {
    let (kind, payload) = error.unwrap_variant();
    let payload = payload
        .map(|payload| json_of("version", &payload))
        .unwrap_or_default();
    let mut members = match (kind.as_ref(), payload) {
        (_, Value::Object(members)) if kind != "locked" => members,
        ("conflict", found) => Map::from_iter([("found".to_owned(), found)]),
        ("locked", holder) => Map::from_iter([("holder".to_owned(), holder)]),
        (_, message) => Map::from_iter([("message".to_owned(), message)]),
    };
    members.insert("kind".to_owned(), kind.as_ref().into());
    Value::Object(members)
}
