"""weightd as a service of a systemd that boots, in a container of its own (`make test-systemd`)."""
