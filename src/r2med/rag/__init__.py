"""Does retrieval change the answer? One model, one prompt, the same questions with and without passages."""
