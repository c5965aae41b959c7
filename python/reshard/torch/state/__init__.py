"""A state dict as loading and saving need it: names, the memory behind them, values, and what ranks have in common."""
