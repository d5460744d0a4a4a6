//! Axes: from numbers to pixels, and the numbers worth a tick.

/// How numbers lie on an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// In proportion.
    Linear,
    /// By the logarithm of one more than the number, so that 0 has a place.
    Log,
}

/// One axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    kind: Kind,
    low: f64,
    high: f64,
    /// Pixels of `low` and `high`.
    pixels: (f64, f64),
}

impl Scale {
    /// An axis from `low` to `high`; where both are the same number it is given some room.
    pub(super) fn new(kind: Kind, low: f64, high: f64, pixels: (f64, f64)) -> Self {
        let high = if high > low {
            high
        } else {
            low + low.abs().max(1.0) * 0.1
        };
        Self {
            kind,
            low,
            high,
            pixels,
        }
    }

    /// Pixel of a number; numbers outside lie on the edge.
    pub(super) fn at(&self, value: f64) -> f64 {
        let place = |value: f64| match self.kind {
            Kind::Linear => value,
            Kind::Log => (1.0 + value.max(0.0)).log2(),
        };
        let (low, high) = (place(self.low), place(self.high));
        let share = ((place(value) - low) / (high - low)).clamp(0.0, 1.0);
        self.pixels.0 + share * (self.pixels.1 - self.pixels.0)
    }

    /// Numbers with a tick, about one for every `room` pixels.
    pub(super) fn ticks(&self, room: f64) -> Vec<f64> {
        let count = ((self.pixels.1 - self.pixels.0).abs() / room).max(2.0);
        match self.kind {
            Kind::Linear => {
                let step = nice((self.high - self.low) / count);
                let first = (self.low / step - 1e-9).ceil();
                (0..)
                    .map(|index| (first + f64::from(index)) * step)
                    .take_while(|tick| *tick <= self.high + step * 1e-9)
                    .collect()
            }
            Kind::Log => {
                let octaves = (1.0 + self.high).log2() - (1.0 + self.low).log2();
                let every = (octaves / count).ceil().max(1.0);
                let mut ticks = vec![];
                if self.low <= 0.0 {
                    ticks.push(0.0);
                }
                let mut tick = 1.0;
                while tick <= self.high {
                    if tick >= self.low {
                        ticks.push(tick);
                    }
                    tick *= every.exp2();
                }
                ticks
            }
        }
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn nice(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|factor| factor * power >= step * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let scale = Scale::new(Kind::Linear, 2.9, 7.7, (0.0, 500.0));
        assert_eq!(scale.ticks(100.0), [3.0, 4.0, 5.0, 6.0, 7.0]);
        let scale = Scale::new(Kind::Log, 0.0, 512.0, (0.0, 500.0));
        assert_eq!(scale.ticks(120.0), [0.0, 1.0, 8.0, 64.0, 512.0]);
        assert_eq!((scale.at(0.0), scale.at(512.0)), (0.0, 500.0));
        // one number is an axis too
        let scale = Scale::new(Kind::Linear, 0.0, 0.0, (0.0, 100.0));
        assert!(scale.ticks(50.0).len() > 1 && scale.at(0.0) == 0.0);
    }
}
