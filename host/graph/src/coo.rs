//! Lists of edges in order of their rows.

use crate::error::{GraphError, check_edges, check_length, check_vertices};

/// That `rows` and `columns` are the edges of an adjacency of `shape` (rows, columns) in order of rows: edge `k` is
/// (`rows[k]`, `columns[k]`), and rows ascend. Gives the number of edges of the longest row.
///
/// # Errors
/// [`GraphError::Length`], [`GraphError::TooManyVertices`], [`GraphError::TooManyEdges`],
/// [`GraphError::VertexOutOfRange`], [`GraphError::RowOrder`].
pub fn check_sorted_coo(
    shape: (usize, usize),
    rows: &[u32],
    columns: &[u32],
) -> Result<u32, GraphError> {
    check_length("columns", columns.len(), rows.len(), "one for each row id")?;
    check_edges(rows.len() as u64)?;
    for (field, ids, vertices) in [("rows", rows, shape.0), ("columns", columns, shape.1)] {
        let vertices = vertices as u64;
        check_vertices(vertices)?;
        if let Some(index) = ids.iter().position(|&id| u64::from(id) >= vertices) {
            return Err(GraphError::VertexOutOfRange {
                field,
                index: index as u64,
                value: ids[index].into(),
                vertices,
            });
        }
    }
    if let Some(at) = rows.windows(2).position(|pair| pair[0] > pair[1]) {
        return Err(GraphError::RowOrder {
            index: at as u64 + 1,
            value: rows[at + 1],
            before: rows[at],
        });
    }
    let lengths = rows.chunk_by(|a, b| a == b).map(<[u32]>::len);
    Ok(lengths.max().unwrap_or(0) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_in_order_have_a_longest_row() {
        assert_eq!(
            check_sorted_coo((5, 3), &[0, 0, 3, 3, 3, 4], &[2, 0, 1, 1, 0, 2]),
            Ok(3)
        );
        assert_eq!(check_sorted_coo((0, 0), &[], &[]), Ok(0));
    }

    #[test]
    fn what_is_no_list_of_edges_in_order_is_said() {
        let said = |shape, rows: &[u32], columns: &[u32]| {
            let error = check_sorted_coo(shape, rows, columns).expect_err("no list of edges");
            error.to_string()
        };
        assert!(said((2, 2), &[0, 1], &[0]).contains("columns has 1 entries where 2"));
        assert!(said((2, 9), &[0, 2], &[0, 0]).contains("rows[1] is 2"));
        assert!(said((9, 2), &[0, 8], &[5, 0]).contains("columns[0] is 5"));
        let order = said((4, 4), &[0, 3, 2], &[0, 0, 0]);
        assert!(order.contains("rows[2] is 2, after 3"), "{order}");
        let most = usize::try_from(crate::index::MAX_VERTICES + 1).expect("64 bits");
        assert!(said((most, 1), &[], &[]).contains("vertices are more than"));
    }
}
