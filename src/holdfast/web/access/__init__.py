"""Who may: the gate before every route, with the rights of people, and the sessions of those who came by a link."""
