"""One module a trace format, each with `recognises(...)` and `read(path, options) -> Trace`."""
