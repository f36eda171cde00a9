"""The concepts of Poolkeeper without Redis or HTTP: amounts, states, queue order, reasons, specs and records."""
