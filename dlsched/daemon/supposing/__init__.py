"""What would become of the jobs otherwise: questions of users, and a policy in the shadow."""
