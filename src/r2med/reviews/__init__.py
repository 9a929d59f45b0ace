"""The review desk: projects of passages to judge, their reviewers, every decision, and the labels made of them."""
