//! What is wrong with a collective, as every member of it is told.

use std::fmt;

use crate::backend::Form;
use crate::dtype::DType;

/// What a peer, or this PE, brought into a collective that makes it invalid for everybody.
///
/// All members compute the same fault from the same exchanged data, so all of them report the same PE.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The PE called another operation, or replays graphs in another order.
    Operation {
        /// What rank 0 of the team called: the code of a [`Form`].
        expected: u32,
        /// What the PE called.
        got: u32,
    },
    /// An argument that must be equal on all members differs from rank 0's.
    Differs {
        /// Which.
        what: Field,
        /// Rank 0's value; 0 for [`Field::Shape`].
        expected: u64,
        /// The PE's value; 0 for [`Field::Shape`].
        got: u64,
    },
    /// Arguments that are equal on all members, but do not belong together.
    Form,
    /// The output is another allocation than rank 0's, or another part of it where the operation asks for the same.
    Output,
    /// An argument was refused on that PE before anything was enqueued; the PE itself got what was expected.
    Argument {
        /// Its name; empty if the PE could not take part for a reason that is no argument's.
        name: &'static str,
        /// Its value there, where that is a number.
        got: Option<i128>,
    },
    /// A split is negative.
    NegativeSplit {
        /// Index in `in_splits`.
        index: u64,
        /// The value.
        value: i64,
    },
    /// Splits (or split plus offset) ask for more rows than the input has.
    InputRows {
        /// Rows asked for.
        needed: u64,
        /// Rows of the input.
        rows: u64,
    },
    /// The rows sent to this PE do not fit its output.
    OutputRows {
        /// Rows needed, padding included.
        needed: u64,
        /// Rows of the output.
        capacity: u64,
    },
}

impl Fault {
    /// That of a PE of which nothing is known but that it did not take part.
    pub const REFUSED: Fault = Fault::Argument { name: "", got: None };

    /// As a user of operation `op` reads it: a row of what has none is an element.
    pub(super) fn in_operation(&self, op: &str) -> String {
        let form = Form::ALL.into_iter().find(|form| form.name() == op);
        match self {
            Fault::OutputRows { needed, capacity } if form.is_some_and(|form| !form.has_rows()) => {
                format!("output needs {needed} elements, it has {capacity}")
            }
            what => what.to_string(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The forms are equal where only the epochs differ, as after graphs that were replayed in another order.
            Fault::Operation { expected, got } if expected == got => {
                write!(f, "called {} out of order: at another epoch than this operation's", operation(*got))
            }
            Fault::Operation { expected, got } => {
                write!(f, "called {} where rank 0 called {}", operation(*got), operation(*expected))
            }
            Fault::Differs { what: Field::DType, expected, got } => {
                write!(f, "dtype is {}, expected rank 0's {}", dtype(*got), dtype(*expected))
            }
            Fault::Differs { what: Field::Shape, .. } => write!(f, "{} differs from rank 0's", Field::Shape),
            Fault::Differs { what, expected, got } => write!(f, "{what} is {got}, expected rank 0's {expected}"),
            Fault::Form => {
                f.write_str(
                    "form: what all give alike (dtype, row size, length, root, experts a rank, major_align) does not belong together",
                )
            }
            Fault::Output => f.write_str("output: another allocation than rank 0's, or another place in it"),
            Fault::Argument { name: "", .. } => f.write_str("its part was refused there; its own error says why"),
            Fault::Argument { name, got: Some(got) } => {
                write!(f, "argument {name} is {got} there and was refused; its own error has what was expected")
            }
            Fault::Argument { name, got: None } => {
                write!(f, "argument {name} was refused there; its own error has the value and what was expected")
            }
            Fault::NegativeSplit { index, value } => {
                write!(f, "in_splits[{index}] is {value}, expected 0 or more")
            }
            Fault::InputRows { needed, rows } => {
                write!(f, "splits ask for {needed} rows, the input has {rows}")
            }
            Fault::OutputRows { needed, capacity } => {
                write!(f, "output needs {needed} rows, it has {capacity}")
            }
        }
    }
}

/// What must be equal on all members of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Field {
    /// Element type; the values are [`DType::code`]s.
    DType,
    /// Bytes of a row, or of an element where there are no rows.
    RowBytes,
    /// Experts a rank, from the length of `in_splits`.
    Experts,
    /// `major_align`, in rows.
    MajorAlign,
    /// Elements that take part.
    Length,
    /// Entries of `in_splits`.
    Splits,
    /// The root's rank.
    Root,
    /// Rows of `last_dim` elements, in `reduce_scatter_last_dim`.
    LeadingRows,
    /// Rows, columns, strides, dimensions, offsets, owners, tiles, roots or the reduction of an operation on blocks, or the plan
    /// of an exchange. They are compared as one number, which says nothing.
    Shape,
}

impl Field {
    /// All of them; a field's place here, counted from 1, is its code in a status record.
    pub(crate) const ALL: [Field; 9] = [
        Field::DType,
        Field::RowBytes,
        Field::Experts,
        Field::MajorAlign,
        Field::Length,
        Field::Splits,
        Field::Root,
        Field::LeadingRows,
        Field::Shape,
    ];
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Field::DType => "dtype",
            Field::RowBytes => "row, in bytes,",
            Field::Experts => "experts a rank (in_splits' length)",
            Field::MajorAlign => "major_align",
            Field::Length => "length in elements",
            Field::Splits => "in_splits' length",
            Field::Root => "root",
            Field::LeadingRows => "rows of last_dim",
            Field::Shape => "shape (rows, columns, strides, offsets, owners, tiles, roots, op) or plan",
        })
    }
}

/// The name of a type's code; one that has none stays a number.
fn dtype(code: u64) -> String {
    let known = u32::try_from(code).ok().and_then(DType::from_code);
    known.map_or_else(|| format!("code {code}"), |dtype| dtype.name().to_owned())
}

/// The name of a form's code; one that has none stays a number.
fn operation(code: u32) -> String {
    Form::from_code(code.into()).map_or_else(|| format!("form {code}"), |form| form.name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_operation_is_named() {
        let code = |form: Form| form.code() as u32;
        let (expected, got) = (code(Form::AllToAllVdev2d), code(Form::Barrier));
        let text = |expected, got| Fault::Operation { expected, got }.to_string();
        assert_eq!(text(expected, got), "called barrier where rank 0 called all_to_all_vdev_2d");
        assert_eq!(text(got, got), "called barrier out of order: at another epoch than this operation's");
        assert_eq!(text(expected, 99), "called form 99 where rank 0 called all_to_all_vdev_2d");
    }

    #[test]
    fn an_output_without_rows_is_told_in_elements() {
        let what = Fault::OutputRows { needed: 1024, capacity: 512 };
        assert_eq!(what.in_operation("all_gather"), "output needs 1024 elements, it has 512");
        assert_eq!(what.in_operation("all_to_all_vdev"), "output needs 1024 rows, it has 512");
    }
}
