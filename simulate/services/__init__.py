"""Services in a replay: their replicas lend GPUs to trainings and take them back.

    description  what a service is: its SLA, its requests, its replicas
    files        a TOML file of services
    demand       how many replicas each gateway needs, window by window
    lending      which GPUs replicas take, and when they give them back
    figures      requests in time, GPU-hours lent

Source: Gujarati et al., "Swayam", Middleware 2017; see `dlsched.policies.services`.
"""
