//! A sampling policy as a component: a store for each request, which its forks share.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host_plugins::{
    Budget, Grants, LogSink, NoVocabulary, PluginError, PluginName, PolicyInput, PolicyInstance, PolicyStep,
    PolicyTraits, PolicyVocabulary, SamplingPolicy, Ticker,
};
use host_sampling::Edits;
use wasmtime::component::ResourceAny;
use wasmtime::{Engine, Store};

use crate::contract_0_2::graph::tenon::plugin::types::PluginError as Given;
use crate::hook::Hook;
use crate::policy_exports::{PolicyExports, PolicyPre};
use crate::policy_guest::PolicyGuest;

/// A sampling policy as a component.
pub struct WasmPolicy {
    shared: Arc<Shared>,
    engine: Engine,
    instance: Box<dyn PolicyPre>,
    log: LogSink,
}

/// What a policy and its instances have in common.
struct Shared {
    name: PluginName,
    ticker: Arc<Ticker>,
    budget: Budget,
}

impl fmt::Debug for WasmPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasmPolicy").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

/// One request's guest.
struct Request {
    store: Store<PolicyGuest>,
    exports: Box<dyn PolicyExports>,
    /// What ended the guest, if something did.
    ended_by: Option<String>,
}

impl Shared {
    /// A hook under the budget of a step, or under that of everything else.
    fn hook(&self, name: &'static str) -> Hook<'_> {
        Hook { plugin: &self.name, name, budget: &self.budget }
    }

    /// Calls a hook under its own deadline. A call that does not return ends the guest.
    fn call<T>(
        &self,
        request: &mut Request,
        name: &'static str,
        call: impl FnOnce(&dyn PolicyExports, &mut Store<PolicyGuest>) -> wasmtime::Result<T>,
    ) -> Result<T, PluginError> {
        if let Some(cause) = &request.ended_by {
            let cause = cause.clone();
            return Err(PluginError::Ended { plugin: self.name.clone(), hook: name, cause });
        }
        let hook = self.hook(name);
        request.store.set_epoch_deadline(Ticker::periods(self.budget.time_ms(name)));
        let _running = self.ticker.run();
        call(&*request.exports, &mut request.store).map_err(|error| {
            let fault = hook.fault(&error, request.store.data_mut().last_line.take());
            request.ended_by = Some(fault.to_string());
            fault
        })
    }

    /// What a policy gave up with.
    fn given(&self, request: &Request, name: &'static str, given: Given) -> PluginError {
        let refusal = request.store.data().step.last_refusal();
        let refused = refusal.map(|refusal| PluginError::Step {
            plugin: self.name.clone(),
            hook: name,
            place: None,
            error: Box::new(refusal.clone()),
        });
        self.hook(name).given(given, refused)
    }
}

impl WasmPolicy {
    pub(crate) fn new(
        name: PluginName,
        engine: Engine,
        instance: Box<dyn PolicyPre>,
        ticker: Arc<Ticker>,
        budget: Budget,
        log: LogSink,
    ) -> Self {
        WasmPolicy { shared: Arc::new(Shared { name, ticker, budget }), engine, instance, log }
    }

    /// A guest of its own that was asked what it needs.
    fn start(&self, vocabulary: Arc<dyn PolicyVocabulary>) -> Result<(Request, PolicyTraits), PluginError> {
        let Shared { name, ticker, budget } = &*self.shared;
        let step = PolicyStep::new(name.clone(), vocabulary, budget, self.log.clone());
        let mut store = Store::new(&self.engine, PolicyGuest::new(step, budget));
        store.limiter(|guest| &mut guest.limits);
        store.epoch_deadline_trap();
        store.set_epoch_deadline(Ticker::periods(budget.time_ms));
        let exports = {
            let _running = ticker.run();
            self.instance.instantiate(&mut store)
        };
        let exports = exports
            .map_err(|error| self.shared.hook("open").fault(&error, store.data_mut().last_line.take()))?;
        let mut request = Request { store, exports, ended_by: None };
        let traits = self.shared.call(&mut request, "describe", |exports, store| exports.describe(store))?;
        request.store.data_mut().step.set_needs(traits.needs);
        Ok((request, traits))
    }
}

impl SamplingPolicy for WasmPolicy {
    fn name(&self) -> &PluginName {
        &self.shared.name
    }

    fn describe(&self) -> Result<PolicyTraits, PluginError> {
        Ok(self.start(Arc::new(NoVocabulary))?.1)
    }

    fn open(
        &self,
        params: &str,
        vocabulary: Arc<dyn PolicyVocabulary>,
        grants: &Grants,
    ) -> Result<Box<dyn PolicyInstance>, PluginError> {
        let (shared, name) = (&self.shared, "open");
        shared.hook(name).check_text("params", params)?;
        let (mut request, traits) = self.start(Arc::clone(&vocabulary))?;
        grants.cover(&shared.name, traits)?;
        let opened =
            shared.call(&mut request, name, |exports, store| exports.open(store, params, &*vocabulary))?;
        let handle = opened.map_err(|given| shared.given(&request, name, given))?;
        let request = Arc::new(Mutex::new(request));
        Ok(Box::new(WasmPolicyInstance { shared: Arc::clone(shared), request, handle, traits }))
    }
}

/// The policy of one request, or a fork of it.
struct WasmPolicyInstance {
    shared: Arc<Shared>,
    request: Arc<Mutex<Request>>,
    handle: ResourceAny,
    traits: PolicyTraits,
}

impl WasmPolicyInstance {
    /// A guest is ended by its own faults alone; a panic elsewhere left it as it was.
    fn request(&self) -> MutexGuard<'_, Request> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offered(&self, is_offered: bool, hook: &'static str) -> Result<(), PluginError> {
        if is_offered {
            return Ok(());
        }
        Err(PluginError::NotOffered { plugin: self.shared.name.clone(), hook })
    }
}

impl PolicyInstance for WasmPolicyInstance {
    fn name(&self) -> &PluginName {
        &self.shared.name
    }

    fn traits(&self) -> PolicyTraits {
        self.traits
    }

    fn step(&mut self, input: &PolicyInput<'_>) -> Result<Edits, PluginError> {
        let (name, handle) = ("step", self.handle);
        let mut request = self.request();
        request.store.data_mut().step.begin(input);
        let result = self.shared.call(&mut request, name, |exports, store| exports.step(store, handle));
        let edits = request.store.data_mut().step.end();
        result?.map_err(|given| self.shared.given(&request, name, given))?;
        Ok(edits)
    }

    fn rollback(&mut self, n: u32) -> Result<(), PluginError> {
        let (name, handle) = ("rollback", self.handle);
        self.offered(self.traits.supports_rollback, name)?;
        let mut request = self.request();
        let result =
            self.shared.call(&mut request, name, |exports, store| exports.rollback(store, handle, n));
        result?.map_err(|given| self.shared.given(&request, name, given))
    }

    fn fork(&mut self) -> Result<Box<dyn PolicyInstance>, PluginError> {
        let (name, handle) = ("fork", self.handle);
        self.offered(self.traits.supports_fork, name)?;
        let mut request = self.request();
        let result = self.shared.call(&mut request, name, |exports, store| exports.fork(store, handle));
        let handle = result?.map_err(|given| self.shared.given(&request, name, given))?;
        Ok(Box::new(WasmPolicyInstance {
            shared: Arc::clone(&self.shared),
            request: Arc::clone(&self.request),
            handle,
            traits: self.traits,
        }))
    }
}

impl Drop for WasmPolicyInstance {
    /// Frees a fork in the guest that others still use; the last one goes with the guest.
    fn drop(&mut self) {
        if Arc::strong_count(&self.request) > 1 {
            let handle = self.handle;
            let mut request = self.request();
            // A destructor that faults ends the guest, which the other instances then report.
            let _ = self.shared.call(&mut request, "drop", |_, store| handle.resource_drop(store));
        }
    }
}
