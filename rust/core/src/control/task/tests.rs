//! Single schedules of a task.
