//! Services as the command line asks for them.

use std::sync::Arc;

use host_plugins::MonotonicClock;
use host_service::reload::{
    ColdStart, Event, GenerationStore, ReloadSettings, Scope, ServedModel, Service, ServiceOptions,
};
use host_service::{Folders, Machine};

use crate::args::{ComposeArgs, FolderArgs, ModelArgs};
use crate::draw::{Style, drawn};
use crate::error::Failure;
use crate::folders;
use crate::open::{Bars, log_to_stderr};

/// What requests of this program call its model.
pub(crate) const MODEL: &str = "model";

/// What a command line asks of a service.
pub(crate) struct Asked<'a> {
    pub(crate) folders: &'a FolderArgs,
    pub(crate) model: &'a ModelArgs,
    pub(crate) compose: &'a ComposeArgs,
    pub(crate) scope: Scope,
    pub(crate) cold_start: ColdStart,
}

impl Asked<'_> {
    /// The process and the options of a service.
    ///
    /// # Errors
    /// Folders or settings that are not there.
    pub(crate) fn options(&self) -> Result<(Arc<Machine>, ServiceOptions), Failure> {
        let machine = Machine::new(log_to_stderr())?;
        let folders =
            Folders { plugins: folders::plugins(self.folders)?, profiles: folders::profiles(self.folders)? };
        let settings = ReloadSettings::load(&folders::with_settings(&folders.profiles)?)?;
        let ModelArgs { model, profile } = self.model.clone();
        let is_named = model.is_some() || profile.is_some();
        let served =
            ServedModel { name: MODEL.to_owned(), model, profile, overrides: self.compose.overrides() };
        let options = ServiceOptions {
            served: if is_named { vec![served] } else { Vec::new() },
            scope: self.scope,
            settings,
            cold_start: self.cold_start,
            store: GenerationStore::of(machine.cache(), &folders),
            folders,
        };
        Ok((machine, options))
    }

    /// A service, which tells `tell` what happens.
    ///
    /// # Errors
    /// Those of [`Asked::options`], and everything that is wrong with the folders.
    pub(crate) fn start(
        &self,
        tell: impl Fn(&Event) + Send + Sync + 'static,
    ) -> Result<Arc<Service>, Failure> {
        let (machine, options) = self.options()?;
        Service::start(machine, options, Arc::new(MonotonicClock::start()), &mut Bars::new(), tell)
    }
}

/// An event with its reports, for people.
pub(crate) fn told(event: &Event, style: Style) -> String {
    let reports: String = event.reports().iter().map(|report| drawn(report, style)).collect();
    format!("{reports}{event}\n")
}
