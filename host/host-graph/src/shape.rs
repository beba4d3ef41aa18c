//! Shapes and element types of graph values.
//!
//! A value that depends on tokens leads with the symbols B (rows of the batch) and T (new tokens of a row);
//! all other dimensions are fixed numbers. B and T never move, so a device may run a ragged batch as one list
//! of tokens.

use std::fmt;

/// One dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// Rows of the batch.
    B,
    /// New tokens of a row.
    T,
    /// A fixed number.
    Fixed(usize),
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::B => f.write_str("B"),
            Dim::T => f.write_str("T"),
            Dim::Fixed(n) => write!(f, "{n}"),
        }
    }
}

/// The shape of a value, outermost dimension first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Shape(pub Vec<Dim>);

impl Shape {
    /// `[B, T, dims…]`: one item a token.
    pub fn per_token(dims: &[usize]) -> Self {
        let lead = [Dim::B, Dim::T].into_iter();
        Shape(lead.chain(dims.iter().map(|n| Dim::Fixed(*n))).collect())
    }

    /// `[dims…]`: the same for every token.
    pub fn fixed(dims: &[usize]) -> Self {
        Shape(dims.iter().map(|n| Dim::Fixed(*n)).collect())
    }

    /// How many dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The leading symbolic dimensions: `[B, T]`, `[B]` inside a scan's body, or none.
    pub fn lead(&self) -> &[Dim] {
        let n = self.0.iter().take_while(|dim| !matches!(dim, Dim::Fixed(_))).count();
        &self.0[..n]
    }

    /// The fixed dimensions behind the symbolic ones.
    pub fn item(&self) -> Vec<usize> {
        self.fixed_dims().collect()
    }

    fn fixed_dims(&self) -> impl Iterator<Item = usize> {
        self.0.iter().filter_map(|dim| match dim {
            Dim::Fixed(n) => Some(*n),
            Dim::B | Dim::T => None,
        })
    }

    /// Elements of one token (or of the whole value when it has no symbolic dimension).
    ///
    /// Stays at `usize::MAX` instead of overflowing; the builder accepts no such value.
    pub fn item_len(&self) -> usize {
        self.fixed_dims().fold(1, usize::saturating_mul)
    }

    /// The last dimension, if it is fixed.
    pub fn last(&self) -> Option<usize> {
        match self.0.last() {
            Some(Dim::Fixed(n)) => Some(*n),
            _ => None,
        }
    }

    /// The same leading dimensions with other fixed ones.
    pub fn with_item(&self, dims: &[usize]) -> Self {
        let lead = self.lead().iter().copied();
        Shape(lead.chain(dims.iter().map(|n| Dim::Fixed(*n))).collect())
    }

    /// The shape of an elementwise operation, aligned at the last dimension as NumPy does.
    ///
    /// A symbol matches itself or an absent dimension, a number matches itself, 1 or an absent dimension.
    /// `None` when the two do not fit.
    pub fn broadcast(&self, other: &Shape) -> Option<Shape> {
        let (long, short) = if self.rank() >= other.rank() { (self, other) } else { (other, self) };
        let skip = long.rank() - short.rank();
        let mut dims = long.0[..skip].to_vec();
        for (a, b) in long.0[skip..].iter().zip(&short.0) {
            dims.push(match (a, b) {
                (a, b) if a == b => *a,
                (Dim::Fixed(1), b) => *b,
                (a, Dim::Fixed(1)) => *a,
                _ => return None,
            });
        }
        Some(Shape(dims))
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, dim) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{dim}")?;
        }
        f.write_str("]")
    }
}

/// What the elements of a value are. The numeric profile decides how a float is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// A floating-point number in the activation dtype.
    Float,
    /// An integer: token ids, positions, indices.
    Int,
    /// A truth value.
    Bool,
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueType::Float => "float",
            ValueType::Int => "int",
            ValueType::Bool => "bool",
        })
    }
}
