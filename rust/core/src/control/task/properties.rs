//! Random schedules of a task.
