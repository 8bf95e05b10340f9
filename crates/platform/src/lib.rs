//! What a machine offers: meters, knobs and time, and Linux behind them
