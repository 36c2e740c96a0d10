
raise()
return {token}
