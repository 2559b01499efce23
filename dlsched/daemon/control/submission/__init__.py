"""Jobs that are submitted or changed: what a client asks for, checked, and made durable."""
