//! Puts what overlaps into rows. Pure.

/// Each item goes to the first row where it has room, in the order in which the items begin.
pub(crate) fn rows<T>(mut items: Vec<T>, extent: impl Fn(&T) -> (f64, f64)) -> Vec<Vec<T>> {
    items.sort_by(|one, other| extent(one).0.total_cmp(&extent(other).0));
    let mut rows: Vec<(f64, Vec<T>)> = Vec::new();
    for item in items {
        let (from, to) = extent(&item);
        match rows.iter_mut().find(|(end, _)| *end <= from) {
            Some((end, row)) => {
                *end = to;
                row.push(item);
            }
            None => rows.push((to, vec![item])),
        }
    }
    rows.into_iter().map(|(_, row)| row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_is_in_different_rows_and_what_only_touches_in_one() {
        let items = vec![(4.0, 6.0), (0.0, 4.0), (3.0, 5.0), (5.0, 9.0)];
        assert_eq!(
            rows(items, |it| *it),
            [vec![(0.0, 4.0), (4.0, 6.0)], vec![(3.0, 5.0), (5.0, 9.0)]]
        );
    }
}
