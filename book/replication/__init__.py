"""What this book's pages need: results, published numbers, claims, tables and figures."""
