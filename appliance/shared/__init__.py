"""What the appliance and the Spark jobs compute alike. Needs only the standard library, because the
image of the jobs has nothing else of the appliance."""
