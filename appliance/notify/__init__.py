"""Messages to the operator: problems that begin, last and end, and questions that wait."""
