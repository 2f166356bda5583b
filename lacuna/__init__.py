"""The command line `lacuna`: joins the pieces and holds none of the logic."""
