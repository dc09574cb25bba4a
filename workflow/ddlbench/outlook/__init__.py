"""What lies ahead: a recommendation, what-if, and the scaling section of an application."""
