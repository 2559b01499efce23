"""The parts of the trace generator; `simulate.traces.generate` puts them together."""
