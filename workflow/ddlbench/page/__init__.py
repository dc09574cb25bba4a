"""The page that people read: `results/<study>/index.html`, one file that needs nothing else, the answer first.

`write.py` puts it together, `answer.py` has the sentences of its first screen, `spent.py` the bill, `rows.py` its
tables, `picture.py` its figures; `page.html.jinja`, `page.css` and `page.js` are what the browser gets. Whatever comes
from a study is text to the page, never HTML.
"""
