"""The variable PATH of commands that a site configures, whatever the environment of the caller."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
