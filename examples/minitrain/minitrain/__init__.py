"""A small LLM trainer, every parallel mode by hand, on CPU over gloo. Import its modules, not the package."""
