//! The known names most like a name that is not known, for mends.

/// Up to three of `known` that differ from `name` in few letters, or contain it; the most similar first.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut scored: Vec<(usize, &str)> = known
        .into_iter()
        .filter_map(|candidate| {
            let distance = edit_distance(name, candidate);
            let is_part = name.len() >= 3 && (candidate.contains(name) || name.contains(candidate));
            let allowed = name.chars().count().max(candidate.chars().count()) / 3;
            (is_part || distance <= allowed.max(1)).then_some((distance, candidate))
        })
        .collect();
    scored.sort();
    scored.dedup();
    scored.into_iter().take(3).map(|(_, candidate)| candidate.to_owned()).collect()
}

/// Insertions, deletions and replacements of one character that turn `a` into `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn names_are_near_by_letters_or_by_part() {
        let known = ["llama", "gemma3", "gemma3-270m", "smollm2-135m"];
        let check = |name: &str, expected: &[&str]| assert_eq!(nearest(name, known), expected, "{name}");
        check("lama", &["llama"]);
        check("gemma", &["gemma3", "gemma3-270m"]);
        check("smollm2-135", &["smollm2-135m"]);
        check("qwen", &[]);
        check("", &[]);
        check("ä", &[]);
    }
}
