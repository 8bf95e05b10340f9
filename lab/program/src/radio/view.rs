//! Spectrum of the sound in the live view.

use punctual_report::view::{EIGHTHS, framed};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Stylize;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

/// Range of the spectrum in decibels of full scale.
const QUIET: f32 = -84.0;
const LOUD: f32 = -12.0;

/// Draws the sound's spectrum, in decibels of full scale.
pub fn draw_spectrum(frame: &mut Frame<'_>, area: Rect, spectrum: &[f32]) {
    let title = Line::from(vec![" sound ".bold(), "40 Hz to 12.5 kHz, -84 to -12 dB ".dim()]);
    let inner = framed(frame, area, title);
    let wide = (usize::from(inner.width) / spectrum.len().max(1)).max(1);
    let lines = (0..inner.height).map(|line| {
        let above = inner.height - 1 - line;
        let columns = spectrum
            .iter()
            .flat_map(|power| std::iter::repeat_n(part(*power, above, inner.height), wide));
        Line::from(columns.collect::<String>().cyan())
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inner);
}

/// Character in the line that has `above` lines below it, for a column of that power.
fn part(power: f32, above: u16, height: u16) -> char {
    let share = ((power - QUIET) / (LOUD - QUIET)).clamp(0.0, 1.0);
    let eighths = (share * f32::from(height) * 8.0) as usize;
    EIGHTHS[eighths.saturating_sub(usize::from(above) * 8).min(8)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn screen(width: u16, height: u16, spectrum: &[f32]) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| draw_spectrum(frame, frame.area(), spectrum))
            .unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>() + "\n";
        (0..height).map(row).collect()
    }

    #[test]
    fn a_spectrum_has_its_range_and_bars() {
        let spectrum: Vec<f32> = (0..32).map(|band| -20.0 - band as f32).collect();
        let text = screen(40, 10, &spectrum);
        assert!(text.contains("40 Hz to") && text.contains('█'), "{text}");
        for (width, height) in [(1, 1), (2, 5), (10, 2), (240, 60)] {
            screen(width, height, &spectrum);
            screen(width, height, &[]);
        }
    }

    #[test]
    fn loud_columns_are_higher() {
        assert_eq!((part(LOUD, 0, 8), part(LOUD, 7, 8)), ('█', '█'));
        assert_eq!((part(QUIET, 0, 8), part(f32::NAN, 0, 8)), (' ', ' '));
        assert_eq!((part(-48.0, 3, 8), part(-48.0, 4, 8)), ('█', ' '), "half way");
    }
}
