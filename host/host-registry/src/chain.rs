//! From texts to profiles: which extends which, and each read with its bases beneath it.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::de::Deserializer;

use crate::error::ProfileError;
use crate::extend::{DEPTH_LIMIT, Head};
use crate::nearest::nearest;
use crate::profile::{Profile, conflicts, faults};
use crate::schema_error;
use crate::set::{Base, LoadedProfile};
use crate::source::ProfileSource;

/// What became of one text.
pub(crate) type Read = Result<LoadedProfile, Vec<ProfileError>>;

/// Indexes a text and looks at its schema version.
pub(crate) fn source_of(file: &str, text: &str) -> Result<ProfileSource, ProfileError> {
    let source = ProfileSource::parse(file, text)
        .map_err(|fault| ProfileError::Syntax { place: Box::new(fault.place), message: fault.message })?;
    schema_error::check_version(&source)?;
    Ok(source)
}

/// Reads every text as a profile, bases first; the results stand in the order of the texts.
pub(crate) fn read_all(sources: Vec<ProfileSource>) -> Vec<Read> {
    let heads: Vec<Head> = sources.iter().map(Head::of).collect();
    let chains = Chains { heads: &heads, sources: &sources, by_id: first_of_each(&heads) };
    let chains: Vec<Result<Vec<usize>, ProfileError>> = (0..sources.len()).map(|i| chains.of(i)).collect();
    let mut order: Vec<usize> = (0..sources.len()).collect();
    order.sort_by_key(|i| chains[*i].as_ref().map_or(0, Vec::len));
    let mut read: BTreeMap<usize, Read> = BTreeMap::new();
    let mut chains: BTreeMap<usize, _> = chains.into_iter().enumerate().collect();
    for i in order {
        let chain = chains.remove(&i).expect("each index stands once in the order");
        let loaded = chain.map_err(|error| vec![error]).and_then(|chain| {
            let base = chain.first().map(|base| &read[base]);
            read_one(&sources[i], &heads[i], base)
        });
        read.insert(i, loaded);
    }
    read.into_values().collect()
}

fn first_of_each(heads: &[Head]) -> BTreeMap<&str, usize> {
    let named = heads.iter().enumerate().filter(|(_, head)| !head.id.is_empty());
    // From the back, so that of two profiles with one id the first stays.
    named.rev().map(|(i, head)| (head.id.as_str(), i)).collect()
}

/// Who extends whom.
struct Chains<'a> {
    heads: &'a [Head],
    sources: &'a [ProfileSource],
    by_id: BTreeMap<&'a str, usize>,
}

impl Chains<'_> {
    /// The profiles beneath one, the nearest first.
    fn of(&self, start: usize) -> Result<Vec<usize>, ProfileError> {
        let place = || Box::new(self.sources[start].place(&["extends"]));
        let refused = |id: &str| Err(ProfileError::BaseRefused { place: place(), id: id.to_owned() });
        let ids = |chain: &[usize]| {
            let all = [start].into_iter().chain(chain.iter().copied());
            all.map(|i| self.heads[i].id.clone()).collect::<Vec<_>>()
        };
        let mut chain: Vec<usize> = Vec::new();
        let mut at = start;
        while let Some(id) = &self.heads[at].extends {
            let nearest_base = self.heads[start].extends.as_deref().unwrap_or(id);
            let Some(&base) = self.by_id.get(id.as_str()) else {
                return if at == start { Err(self.unknown(start, id)) } else { refused(nearest_base) };
            };
            if base == start {
                let chain = [ids(&chain), vec![id.clone()]].concat();
                return Err(ProfileError::BaseCycle { place: place(), chain });
            }
            if chain.contains(&base) {
                return refused(nearest_base);
            }
            chain.push(base);
            if chain.len() >= DEPTH_LIMIT {
                let chain = ids(&chain);
                return Err(ProfileError::BaseDepth { place: place(), limit: DEPTH_LIMIT, chain });
            }
            at = base;
        }
        Ok(chain)
    }

    fn unknown(&self, at: usize, id: &str) -> ProfileError {
        let own = &self.heads[at].id;
        let known: Vec<&str> = self.by_id.keys().copied().filter(|known| known != own).collect();
        ProfileError::BaseUnknown {
            place: Box::new(self.sources[at].place(&["extends"])),
            id: id.to_owned(),
            nearest: nearest(id, known.iter().copied()),
            known: known.into_iter().map(str::to_owned).collect(),
        }
    }
}

fn read_one(own: &ProfileSource, head: &Head, base: Option<&Read>) -> Read {
    let base = match base {
        None => None,
        Some(Ok(base)) => Some(base),
        Some(Err(_)) => {
            let id = head.extends.clone().unwrap_or_default();
            return Err(vec![ProfileError::BaseRefused { place: Box::new(own.place(&["extends"])), id }]);
        }
    };
    let idle = |key: String| ProfileError::WithoutIdle {
        place: Box::new(own.place(&["without"])),
        key,
        base: head.extends.clone(),
    };
    let source = match base {
        None => own.clone(),
        Some(base) => {
            own.over(base.source()).map_err(|keys| keys.into_iter().map(idle).collect::<Vec<_>>())?
        }
    };
    let profile = Profile::deserialize(Deserializer::from(source.table()))
        .map_err(|error| vec![blame_without(own, schema_error::explain(&source, &error))])?;
    let mut errors: Vec<ProfileError> =
        faults(&profile).into_iter().map(|fault| ProfileError::value(&source, fault)).collect();
    if base.is_none() {
        errors.extend(profile.without.iter().cloned().map(idle));
    }
    // Lines without meaning contradict nothing yet.
    if errors.is_empty() {
        let conflicts = conflicts(&profile.match_).into_iter();
        errors.extend(conflicts.map(|conflict| ProfileError::conflict(&source, conflict)));
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let bases = base.map_or_else(Vec::new, |base| {
        let nearest = Base { id: base.id().to_owned(), file: base.source().file().to_owned() };
        [vec![nearest], base.bases().to_vec()].concat()
    });
    Ok(LoadedProfile::new(profile, source, bases))
}

/// A key that `without` takes away is missing there, not in the base, which has it.
fn blame_without(own: &ProfileSource, error: ProfileError) -> ProfileError {
    let ProfileError::MissingKey { place, key } = error else { return error };
    let taken = Head::without(own).iter().any(|path| path.rsplit('.').next() == Some(&key));
    let place = if taken { Box::new(own.place(&["without"])) } else { place };
    ProfileError::MissingKey { place, key }
}
