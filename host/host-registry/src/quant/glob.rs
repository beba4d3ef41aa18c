//! Globs over tensor names: `*` stands for any characters, none included, `?` for exactly one.

/// Whether `name` is of the form of `glob`.
pub(super) fn matches(glob: &str, name: &str) -> bool {
    let (glob, name): (Vec<char>, Vec<char>) = (glob.chars().collect(), name.chars().collect());
    let (mut g, mut n) = (0, 0);
    // Where the last star stands, and how much of the name it has been given.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match glob.get(g) {
            Some('*') => {
                star = Some((g, n));
                g += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                g += 1;
                n += 1;
            }
            _ => {
                // The last star takes one character more; earlier ones need never take more.
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                g = at + 1;
                n = taken + 1;
            }
        }
    }
    glob[g..].iter().all(|c| *c == '*')
}
