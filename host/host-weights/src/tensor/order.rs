//! In which order a file stores the rows of a tensor.

/// Maps a row of the published checkpoint to the row of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowOrder {
    /// The published order.
    Published,
    /// Query and key rows for rotary pairs side by side: within each head, the file's rows `2i` and `2i + 1` are
    /// the published rows `i` and `i + head_dim / 2`. GGUF stores the llama family so.
    RotaryPairs {
        /// Rows of a head; even.
        head_dim: usize,
    },
}

impl RowOrder {
    /// The row of the file that holds published row `row`.
    pub(crate) fn stored(self, row: usize) -> usize {
        match self {
            RowOrder::Published => row,
            RowOrder::RotaryPairs { head_dim } => {
                let (head, within) = (row / head_dim, row % head_dim);
                let half = head_dim / 2;
                head * head_dim + 2 * (within % half) + within / half
            }
        }
    }
}
