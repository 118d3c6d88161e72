//! One call: a fresh store, an instance, limits, a deadline. Nothing of it outlives the call, so a plugin that
//! traps, hangs or fills its memory harms no other one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use wasmtime::component::ResourceTable;
use wasmtime::{Store, StoreLimits, StoreLimitsBuilder, Trap};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::bindings::exports::pipeline::state::registration::PluginInfo;
use crate::bindings::pipeline::state::types as wit;
use crate::bindings::{Plugin, PluginPre};
use crate::engine::CALLS_AT_ONCE;
use crate::outbound::Outbound;
use crate::{Error, Outcome};

/// How many things of the host a plugin may hold at once. It needs some ten for each request, and sends few at once.
const RESOURCES: usize = 4096;
/// How many bytes of headers each request may have: a plugin holds as many of them as it may things.
const LONGEST_HEADERS: usize = 32 * 1024;
/// How many functions a table of a plugin may refer to; the ClickHouse plugin's has some hundreds.
const TABLE_ELEMENTS: usize = 100_000;

/// What one call may use.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// From the call's start to its end, waiting for the store included.
    pub(crate) deadline: Duration,
    /// The plugin's memory in bytes.
    pub(crate) memory: usize,
    /// The places in the engine's pool, shared by all plugins of it.
    turns: Arc<Semaphore>,
}

impl Limits {
    pub(crate) fn new(deadline: Duration, memory: usize) -> Limits {
        Limits {
            deadline,
            memory,
            turns: Arc::new(Semaphore::new(CALLS_AT_ONCE as usize)),
        }
    }
}

/// Whether a call may change the store, which decides what a broken one may have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Access {
    fn outcome_when_broken(self) -> Outcome {
        match self {
            Access::Read => Outcome::NotApplied,
            Access::Write => Outcome::Unknown,
        }
    }
}

/// What a plugin's imports stand on during one call.
pub(crate) struct CallState {
    table: ResourceTable,
    wasi: WasiCtx,
    http: WasiHttpCtx,
    outbound: Outbound,
    limits: StoreLimits,
}

impl WasiView for CallState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

impl WasiHttpView for CallState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView {
            hooks: &mut self.outbound,
            table: &mut self.table,
            ctx: &mut self.http,
        }
    }
}

/// Makes one call on a fresh instance.
pub(crate) async fn call<T>(
    pre: &PluginPre<CallState>,
    limits: &Limits,
    outbound: Outbound,
    access: Access,
    function: impl AsyncFnOnce(
        &Plugin,
        &mut Store<CallState>,
    ) -> wasmtime::Result<Result<T, wit::Error>>,
) -> Result<T, Error> {
    let deadline = Instant::now() + limits.deadline;
    // Before the store, so that it is given back after the store's place in the pool.
    let Ok(_turn) = timeout_at(deadline, limits.turns.acquire()).await else {
        return Err(late(limits, Outcome::NotApplied));
    };
    let traffic = outbound.traffic();
    let mut store = new_store(pre, limits, outbound);
    let run = async {
        let plugin = pre.instantiate_async(&mut store).await?;
        function(&plugin, &mut store).await
    };
    let result = timeout_at(deadline, run).await;
    let outcome = access.outcome_when_broken();
    let error = match result {
        Ok(Ok(Ok(value))) => return Ok(value),
        Ok(Ok(Err(error))) => Error::from(error),
        Ok(Err(trap)) => Error::PluginFailed {
            reason: reason(&trap),
            outcome,
        },
        Err(_elapsed) => late(limits, outcome),
    };
    // The plugin can only tell that a request was refused; the host knows which one, and why.
    if let Some(denied) = traffic.denied.get() {
        return Err(Error::NotAllowed {
            message: denied.to_string(),
            outcome,
        });
    }
    Err(match store.into_data().outbound.into_denial() {
        Some((asked, allowed)) => Error::OriginDenied {
            asked,
            allowed,
            outcome,
        },
        None => error,
    })
}

fn late(limits: &Limits, outcome: Outcome) -> Error {
    Error::TimedOut {
        message: format!(
            "no answer within {} s, which is all that a call may take",
            limits.deadline.as_secs_f64()
        ),
        outcome,
    }
}

/// Asks a plugin to describe itself. It can reach nothing meanwhile.
pub(crate) async fn describe(
    pre: &PluginPre<CallState>,
    limits: &Limits,
) -> Result<PluginInfo, Error> {
    call(
        pre,
        limits,
        Outbound::closed(),
        Access::Read,
        async |plugin, store| {
            let registration = plugin.pipeline_state_registration();
            Ok(Ok(registration.call_describe(store).await?))
        },
    )
    .await
}

fn new_store(pre: &PluginPre<CallState>, limits: &Limits, outbound: Outbound) -> Store<CallState> {
    let mut table = ResourceTable::new();
    table.set_max_capacity(RESOURCES);
    let mut http = WasiHttpCtx::new();
    http.set_field_size_limit(LONGEST_HEADERS);
    let state = CallState {
        table,
        wasi: WasiCtx::builder().build(),
        http,
        outbound,
        limits: StoreLimitsBuilder::new()
            .memory_size(limits.memory)
            .table_elements(TABLE_ELEMENTS)
            .trap_on_grow_failure(true)
            .build(),
    };
    let mut store = Store::new(pre.engine(), state);
    store.limiter(|state| &mut state.limits);
    // What a plugin may hand over at once: no more than it can hold.
    store.set_hostcall_fuel(limits.memory);
    // A plugin that computes gives way at each tick, so that the deadline above is noticed.
    store.set_epoch_deadline(1);
    store.epoch_deadline_async_yield_and_update(1);
    store
}

/// One line about a trap, without the WebAssembly stack, which says nothing to an operator.
fn reason(error: &wasmtime::Error) -> String {
    match error.downcast_ref::<Trap>() {
        Some(trap) => trap.to_string(),
        None => error.root_cause().to_string().replace('\n', " "),
    }
}
