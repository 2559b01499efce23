"""The slot world of DL2: jobs with workers and parameter servers, divided anew in every slot."""
