//! The exports of a policy, whichever contract it was made for, in the host's words.

use host_plugins::{Needs, PolicyTraits, PolicyVocabulary};
use wasmtime::component::{InstancePre, Resource, ResourceAny};
use wasmtime::{Result, Store};

use crate::contract_0_2::graph::tenon::plugin::types::PluginError as Given;
use crate::contract_0_2::sampling::tenon::plugin::sampling;
use crate::policy_guest::{PolicyGuest, StepHandle};
use crate::{contract_0_1, contract_0_2};

type Outcome<T> = Result<std::result::Result<T, Given>>;

/// What an instance of a policy's component is called for.
pub(crate) trait PolicyExports: Send {
    /// What it needs and offers.
    fn describe(&self, store: &mut Store<PolicyGuest>) -> Result<PolicyTraits>;
    /// A policy for a request.
    fn open(
        &self,
        store: &mut Store<PolicyGuest>,
        params: &str,
        vocabulary: &dyn PolicyVocabulary,
    ) -> Outcome<ResourceAny>;
    /// The step that the store's guest has begun.
    fn step(&self, store: &mut Store<PolicyGuest>, policy: ResourceAny) -> Outcome<()>;
    /// Forgets the last `n` tokens.
    fn rollback(&self, store: &mut Store<PolicyGuest>, policy: ResourceAny, n: u32) -> Outcome<()>;
    /// A second policy.
    fn fork(&self, store: &mut Store<PolicyGuest>, policy: ResourceAny) -> Outcome<ResourceAny>;
}

/// A policy's component, linked and ready for instances.
pub(crate) trait PolicyPre: Send + Sync {
    /// An instance in this store.
    fn instantiate(&self, store: &mut Store<PolicyGuest>) -> Result<Box<dyn PolicyExports>>;
}

/// The bindings of one contract. They differ in the names that they look up, and later in what they convert.
macro_rules! policy_of {
    ($contract:ident) => {
        impl PolicyPre for $contract::sampling::SamplingPolicyPre<PolicyGuest> {
            fn instantiate(&self, store: &mut Store<PolicyGuest>) -> Result<Box<dyn PolicyExports>> {
                Ok(Box::new(self.instantiate(store)?))
            }
        }

        impl PolicyExports for $contract::sampling::SamplingPolicy {
            fn describe(&self, store: &mut Store<PolicyGuest>) -> Result<PolicyTraits> {
                self.tenon_plugin_policy().call_describe(store).map(traits_of)
            }

            fn open(
                &self,
                store: &mut Store<PolicyGuest>,
                params: &str,
                vocabulary: &dyn PolicyVocabulary,
            ) -> Outcome<ResourceAny> {
                self.tenon_plugin_policy().instance().call_open(store, params, &known(vocabulary))
            }

            fn step(&self, store: &mut Store<PolicyGuest>, policy: ResourceAny) -> Outcome<()> {
                let step = Resource::<StepHandle>::new_borrow(0);
                self.tenon_plugin_policy().instance().call_step(store, policy, step)
            }

            fn rollback(&self, store: &mut Store<PolicyGuest>, policy: ResourceAny, n: u32) -> Outcome<()> {
                self.tenon_plugin_policy().instance().call_rollback(store, policy, n)
            }

            fn fork(&self, store: &mut Store<PolicyGuest>, policy: ResourceAny) -> Outcome<ResourceAny> {
                self.tenon_plugin_policy().instance().call_fork(store, policy)
            }
        }
    };
}

policy_of!(contract_0_1);
policy_of!(contract_0_2);

/// A policy's component that was linked for contract 0.1.
pub(crate) fn policy_0_1(instance: InstancePre<PolicyGuest>) -> Result<Box<dyn PolicyPre>> {
    Ok(Box::new(contract_0_1::sampling::SamplingPolicyPre::new(instance)?))
}

/// The same for contract 0.2.
pub(crate) fn policy_0_2(instance: InstancePre<PolicyGuest>) -> Result<Box<dyn PolicyPre>> {
    Ok(Box::new(contract_0_2::sampling::SamplingPolicyPre::new(instance)?))
}

fn known(vocabulary: &dyn PolicyVocabulary) -> sampling::Vocabulary {
    sampling::Vocabulary { n_vocab: vocabulary.n_vocab(), eos_ids: vocabulary.eos_ids() }
}

fn traits_of(traits: sampling::Traits) -> PolicyTraits {
    PolicyTraits {
        needs: match traits.needs {
            sampling::Needs::MaskOnly => Needs::MaskOnly,
            sampling::Needs::TopK(k) => Needs::TopK(k),
            sampling::Needs::FullLogits => Needs::FullLogits,
        },
        is_argmax_invariant: traits.argmax_invariant,
        supports_rollback: traits.supports_rollback,
        supports_fork: traits.supports_fork,
    }
}
