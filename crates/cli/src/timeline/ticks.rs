//! Round times to write below a picture. Pure.

use super::model::Span;
use jiff::Timestamp;

const STEPS: [i64; 18] = [
    1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 172_800, 604_800,
    2_592_000,
];
const MINUTE: i64 = 60;
const DAY: i64 = 86_400;

/// At most so many round times within the window, and how they are written.
pub(crate) fn ticks(window: Span, most: usize) -> Vec<(Timestamp, String)> {
    let (from, to) = (window.from.as_second(), window.to.as_second());
    let most = i64::try_from(most.max(1)).unwrap_or(1);
    let fits = |step: &&i64| (to - from) / **step <= most;
    let step = STEPS.iter().find(fits).copied().unwrap_or((to - from) / most + 1);
    let first = from.div_euclid(step) * step;
    let all = (0..=most + 1).map(|number| first + number * step);
    let times = all.filter_map(|second| Timestamp::from_second(second).ok());
    times
        .filter(|time| window.has(*time))
        .map(|time| (time, written(time, step, to - from)))
        .collect()
}

fn written(time: Timestamp, step: i64, length: i64) -> String {
    let format = match () {
        () if step >= DAY => "%m-%d",
        () if length > DAY => "%m-%d %H:%M",
        () if step >= MINUTE => "%H:%M",
        () => "%H:%M:%S",
    };
    time.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::at;

    fn written(seconds: i64, most: usize) -> Vec<String> {
        let window = Span::new(at(0), at(seconds));
        ticks(window, most).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_few_and_written_as_finely_as_they_lie() {
        assert_eq!(written(3600, 3), ["08:00", "08:30", "09:00"]);
        assert_eq!(
            written(50, 6),
            [
                "08:00:00", "08:00:10", "08:00:20", "08:00:30", "08:00:40", "08:00:50"
            ]
        );
        assert_eq!(written(3 * DAY, 4), ["01-16", "01-17", "01-18"]);
        assert_eq!(
            written(2 * DAY, 6),
            ["01-15 12:00", "01-16 00:00", "01-16 12:00", "01-17 00:00"]
        );
    }

    #[test]
    fn a_window_of_years_has_few_ticks_too() {
        assert!(written(400 * DAY * 10, 8).len() <= 9);
    }
}
