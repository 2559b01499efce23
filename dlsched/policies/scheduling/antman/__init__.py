"""AntMan's global scheduler (OSDI 2020): guaranteed jobs, and others in what they leave."""
