"""Jobs that come and go: each is started when it is admitted, and gives back what it had."""
