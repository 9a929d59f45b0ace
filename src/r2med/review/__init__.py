"""The review desk: projects of passages to judge, who judges them, every decision, and what is made of them."""
