"""What people and machines read: tables with repeated layers in one line, and more to come."""
