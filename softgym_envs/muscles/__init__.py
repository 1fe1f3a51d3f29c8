"""Hill muscles, their paths around surfaces, and files that describe bones with muscles.

Physics shared by several systems; it knows no robot.
"""
