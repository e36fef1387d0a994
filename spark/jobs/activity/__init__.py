"""Silver to gold: what every sender did in every topic on every day, and who answers whom."""
