//! Pictures and tables: how a trace or a plan is shown.
