"""One module per command. They parse and print; the work is in the modules they import when called."""
