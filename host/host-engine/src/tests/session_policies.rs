//! The policy of a session: told of each token once, rolled back and forked with it.

use std::sync::{Arc, Mutex};

use host_plugins::{Needs, PluginError, PluginName, PolicyInput, PolicyInstance, PolicyTraits};
use host_sampling::Edits;

use super::policies::{plugin, with_policy};
use super::*;

type Book = Arc<Mutex<Vec<u32>>>;

/// Writes down what it is told, and forbids what stands there: its edits are a function of the whole text.
struct Diary {
    book: Book,
    /// Books of forks, for the test.
    books: Arc<Mutex<Vec<Book>>>,
    offers_rollback: bool,
    offers_fork: bool,
}

impl Diary {
    fn new(offers_rollback: bool, offers_fork: bool) -> (Self, Arc<Mutex<Vec<Book>>>) {
        let book = Book::default();
        let books = Arc::new(Mutex::new(vec![Arc::clone(&book)]));
        (Diary { book, books: Arc::clone(&books), offers_rollback, offers_fork }, books)
    }
}

impl PolicyInstance for Diary {
    fn name(&self) -> &PluginName {
        static NAME: std::sync::LazyLock<PluginName> = std::sync::LazyLock::new(plugin);
        &NAME
    }

    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            needs: Needs::MaskOnly,
            is_argmax_invariant: false,
            supports_rollback: self.offers_rollback,
            supports_fork: self.offers_fork,
        }
    }

    fn step(&mut self, input: &PolicyInput<'_>) -> Result<Edits, PluginError> {
        let mut book = self.book.lock().expect("no panic");
        book.extend_from_slice(input.accepted);
        let bias = book.iter().map(|token| (*token, f32::NEG_INFINITY)).collect();
        Ok(Edits { bias, ..Edits::none() })
    }

    fn rollback(&mut self, n: u32) -> Result<(), PluginError> {
        if !self.offers_rollback {
            return Err(PluginError::NotOffered { plugin: plugin(), hook: "rollback" });
        }
        let mut book = self.book.lock().expect("no panic");
        let kept = book.len().checked_sub(n as usize).expect("no more than it was told of");
        book.truncate(kept);
        Ok(())
    }

    fn fork(&mut self) -> Result<Box<dyn PolicyInstance>, PluginError> {
        if !self.offers_fork {
            return Err(PluginError::NotOffered { plugin: plugin(), hook: "fork" });
        }
        let book = Arc::new(Mutex::new(self.book.lock().expect("no panic").clone()));
        self.books.lock().expect("no panic").push(Arc::clone(&book));
        let (books, offers_rollback, offers_fork) =
            (Arc::clone(&self.books), self.offers_rollback, self.offers_fork);
        Ok(Box::new(Diary { book, books, offers_rollback, offers_fork }))
    }
}

/// What the toy says when no token may come twice.
fn without_repeats(toy: &Toy, prompt: &[u32], n: usize) -> Vec<u32> {
    let mut tokens = prompt.to_vec();
    for _ in 0..n {
        let mut next = toy.next(&tokens);
        while tokens.contains(&next) {
            next = (next + 1) % toy.n_vocab as u32;
        }
        tokens.push(next);
    }
    tokens.split_off(prompt.len())
}

fn say(engine: &mut Engine, session: SessionId, prompt: &[u32], n: usize) -> Result<Vec<u32>, &'static str> {
    let request = Request { session: Some(session), ..greedy(prompt, n) };
    let id = engine.submit(request).expect("a good request");
    let events = drain(engine);
    end_of(&events, id).map(|_| tokens_of(&events, id))
}

fn read(books: &Mutex<Vec<Book>>, at: usize) -> Vec<u32> {
    books.lock().expect("no panic")[at].lock().expect("no panic").clone()
}

#[test]
fn it_goes_on_and_goes_back_with_the_prompt() {
    for is_append_only in [false, true] {
        let toy = Toy { is_append_only, ..Toy::default() };
        let (mut engine, _) = engine(&toy);
        let (diary, books) = Diary::new(true, true);
        let session = engine.open_session_with(Box::new(diary));
        let first = without_repeats(&toy, &[1, 2, 3], 3);
        assert_eq!(say(&mut engine, session, &[1, 2, 3], 3), Ok(first.clone()));
        assert_eq!(
            read(&books, 0),
            [&[1, 2, 3], &first[..2]].concat(),
            "the last token had no step after it"
        );
        let longer = [&[1, 2, 3][..], &first, &[9, 10]].concat();
        let second = without_repeats(&toy, &longer, 2);
        assert_eq!(say(&mut engine, session, &longer, 2), Ok(second.clone()));
        assert_eq!(read(&books, 0), [&longer[..], &second[..1]].concat(), "each token once");
        // Shorter, and other from the third token on.
        let third = without_repeats(&toy, &[1, 2, 50], 2);
        assert_eq!(say(&mut engine, session, &[1, 2, 50], 2), Ok(third.clone()));
        assert_eq!(read(&books, 0), [1, 2, 50, third[0]]);
        // Exactly what it was told of, again.
        let told = [1, 2, 50, third[0]];
        assert_eq!(say(&mut engine, session, &told, 1), Ok(without_repeats(&toy, &told, 1)));
        assert_eq!(read(&books, 0), told);
        engine.close_session(session).expect("it is open");
        assert_all_released(&engine);
    }
}

#[test]
fn one_that_cannot_go_back_is_refused_by_name_and_the_session_stays() {
    let toy = Toy::default();
    let (mut engine, _) = engine(&toy);
    let (diary, books) = Diary::new(false, true);
    let session = engine.open_session_with(Box::new(diary));
    let first = say(&mut engine, session, &[1, 2, 3], 2).expect("nothing to forget");
    assert_eq!(say(&mut engine, session, &[1, 2], 2), Err("plugin.hook-not-offered"));
    let longer = [&[1, 2, 3][..], &first, &[9]].concat();
    assert_eq!(say(&mut engine, session, &longer, 1), Ok(without_repeats(&toy, &longer, 1)));
    assert_eq!(read(&books, 0), longer);
    engine.close_session(session).expect("it is open");
    assert_all_released(&engine);
}

#[test]
fn a_fork_has_a_policy_of_its_own() {
    let toy = Toy::default();
    let (mut engine, _) = engine(&toy);
    let (diary, books) = Diary::new(true, true);
    let trunk = engine.open_session_with(Box::new(diary));
    let empty = engine.fork_session(trunk).expect("before the first request, too");
    assert_eq!(say(&mut engine, empty, &[7], 2), Ok(without_repeats(&toy, &[7], 2)));
    say(&mut engine, trunk, &[1, 2, 3], 2).expect("a good request");
    let branch = engine.fork_session(trunk).expect("there is room");
    assert_eq!(read(&books, 2), read(&books, 0));
    for (session, last, book) in [(branch, 20, 2), (trunk, 30, 0)] {
        let prompt = [1, 2, 3, last];
        assert_eq!(say(&mut engine, session, &prompt, 1), Ok(without_repeats(&toy, &prompt, 1)));
        assert_eq!(read(&books, book), prompt);
    }
    let (diary, _) = Diary::new(true, false);
    let lonely = engine.open_session_with(Box::new(diary));
    say(&mut engine, lonely, &[1], 1).expect("a good request");
    let refused = engine.fork_session(lonely).expect_err("it cannot be forked").report();
    assert_eq!(refused.code, "plugin.hook-not-offered");
    for session in [trunk, empty, branch, lonely] {
        engine.close_session(session).expect("it is open");
    }
    assert_all_released(&engine);
}

#[test]
fn a_request_with_its_own_policy_leaves_the_sessions_aside() {
    let toy = Toy::default();
    let (mut engine, _) = engine(&toy);
    let (diary, books) = Diary::new(true, true);
    let session = engine.open_session_with(Box::new(diary));
    let plain = with_policy(greedy(&[1, 2], 3), |_| Ok(Edits::none()));
    let id = engine.submit(Request { session: Some(session), ..plain }).expect("a good request");
    let said = tokens_of(&drain(&mut engine), id);
    assert_eq!(said, toy.continue_greedily(&[1, 2], 3));
    assert!(read(&books, 0).is_empty());
    let longer = [&[1, 2][..], &said].concat();
    assert_eq!(say(&mut engine, session, &longer, 1), Ok(without_repeats(&toy, &longer, 1)));
    assert_eq!(read(&books, 0), longer, "it is told of what it missed");
}

#[test]
fn a_cancelled_request_gives_the_policy_back() {
    let toy = Toy::default();
    let (mut engine, _) = engine(&toy);
    let (diary, books) = Diary::new(true, true);
    let session = engine.open_session_with(Box::new(diary));
    let request = Request { session: Some(session), ..greedy(&[1], 100) };
    let cancel = request.cancel.clone();
    engine.submit(request).expect("a good request");
    engine.step();
    cancel.cancel();
    drain(&mut engine);
    assert_eq!(read(&books, 0), [1]);
    assert_eq!(say(&mut engine, session, &[1, 5], 1), Ok(without_repeats(&toy, &[1, 5], 1)));
    assert_eq!(read(&books, 0), [1, 5]);
}
