"""What Poolkeeper is about, with no word of Redis or HTTP: amounts, states, order, reasons, asks and answers."""
